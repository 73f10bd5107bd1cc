// @confluentinc/kafka-javascript, that is librdkafka once more, by its callback API: that one has an acknowledgement
// for each record and a consumer that assigns itself.
'use strict'
const { setTimeout: sleep } = require('node:timers/promises')
const { promisify } = require('node:util')
const { Producer, KafkaConsumer, CODES } = require('@confluentinc/kafka-javascript')
const login = require('./login.js')
const { Fenced, perTransaction, beatTime, pollTime } = require('./steps.js')

const common = (bootstrap) => ({
  'bootstrap.servers': bootstrap, 'client.id': 'compat', 'broker.address.family': 'v4',
  'reconnect.backoff.max.ms': 500, 'log_level': 0, ...login.librdkafka(),
})
const pollMs = 10
const paceRecords = 10
const paceAhead = 100 // records that may wait for their acknowledgement

// The binding takes an empty Buffer for null unless it is a part of a longer one.
const nothing = Buffer.alloc(1).subarray(0, 0)
const kept = (b) => (b !== null && b.length === 0 ? nothing : b)

// The library tries again to log in until its time is over and then says only that it is not connected; why is said by an
// event, which has no code but the text. A producer has to poll for it, a consumer gets it with the end. The process
// ends no sooner than the library's attempt.
const refusal = 'authentication failure'
const connectTime = 10000 // ms
const connect = (client) => new Promise((resolve, reject) => {
  const polling = setInterval(() => { if (client.poll && client.isConnected()) client.poll() }, pollMs)
  let refused
  client.on('event.error', (error) => {
    if (error.message !== refusal) return
    refused = error
    reject(error)
  })
  client.connect({ timeout: connectTime }, (error) => {
    clearInterval(polling)
    if (error) reject(refused || error)
    else resolve()
  })
})

exports.produce = async ({ bootstrap, topic, codec, plain, pace, records, acknowledge, fail }) => {
  const producer = new Producer({
    ...common(bootstrap), 'enable.idempotence': !plain, 'compression.type': codec, 'linger.ms': pace > 0 ? 5 : 300,
    'batch.size': 1000000, 'batch.num.messages': 5000, 'delivery.timeout.ms': 60000, 'dr_cb': true,
  })
  await connect(producer)
  producer.setPollInterval(pollMs)
  let left = records.length
  const done = new Promise((resolve) => {
    producer.on('delivery-report', (error, report) => {
      if (error) fail(report.opaque, error)
      else acknowledge(report.opaque, report.offset)
      if (--left === 0) resolve()
    })
  })
  for (let i = 0; i < records.length; i++) {
    const { partition, time, key, value, headers } = records[i]
    producer.produce(topic, partition, kept(value), kept(key), time, i,
      headers.map((h) => ({ [h.key]: kept(h.value) })))
    if (pace > 0 && i % paceRecords === paceRecords - 1) {
      do await sleep(pace); while (i - (records.length - left) >= paceAhead)
    }
  }
  await done
}

exports.consume = async ({ bootstrap, topic, ends, record }) => {
  // The library wants a group id even from a reader that assigns itself and never joins.
  const consumer = new KafkaConsumer(
    { ...common(bootstrap), 'group.id': 'unused', 'enable.auto.commit': false, 'fetch.wait.max.ms': 200 },
    { 'auto.offset.reset': 'error' })
  await connect(consumer)
  consumer.assign(ends.map((_, partition) => ({ topic, partition, offset: 0 })))
  let left = ends.reduce((sum, end) => sum + end, 0)
  while (left > 0) {
    const messages = await new Promise((resolve, reject) => {
      consumer.consume(Math.min(left, 1000), (error, got) => (error ? reject(error) : resolve(got)))
    })
    for (const m of messages) {
      const headers = (m.headers || []).flatMap((h) => Object.entries(h)).map(([key, value]) => ({ key, value }))
      record({ partition: m.partition, offset: m.offset, time: m.timestamp, key: m.key, value: m.value, headers })
      left--
    }
  }
}

const callTime = 30000 // ms
// A static member whose session has timed out while the broker was down forgets its member id and is fenced by itself.
const longSession = 6000
const fenced = new Set([CODES.ERRORS.ERR__FENCED, CODES.ERRORS.ERR_PRODUCER_FENCED,
  CODES.ERRORS.ERR_INVALID_PRODUCER_EPOCH])

// Repeats what may be repeated.
const insist = async (call) => {
  for (;;) {
    try {
      return await call()
    } catch (error) {
      if (!error.isRetriable) throw error
    }
  }
}

// The calls of a producer and a consumer as promises.
const promising = (producer, consumer) => ({
  init: () => insist(() => promisify((done) => producer.initTransactions(callTime, done))()),
  begin: () => promisify((done) => producer.beginTransaction(done))(),
  offsets: (all) => insist(() =>
    promisify((done) => producer.sendOffsetsToTransaction(all, consumer, callTime, done))()),
  commit: () => insist(() => promisify((done) => producer.commitTransaction(callTime, done))()),
  abort: () => insist(() => promisify((done) => producer.abortTransaction(callTime, done))()),
  poll: () => promisify((done) => consumer.consume(perTransaction, done))(),
  committed: (all) => promisify((done) => consumer.committed(all, callTime, done))(),
  seek: (to) => promisify((done) => consumer.seek(to, callTime, done))(),
})

exports.loop = async ({ bootstrap, input, output, group, id, instance, steps }) => {
  const brokers = { ...common(bootstrap), 'reconnect.backoff.max.ms': 200 }
  const producer = new Producer({ ...brokers, 'transactional.id': id, 'linger.ms': 0, 'dr_cb': true })
  const consumer = new KafkaConsumer({
    ...brokers, 'group.id': group, 'group.instance.id': instance, 'isolation.level': 'read_committed',
    'enable.auto.commit': false, 'fetch.wait.max.ms': pollTime, 'session.timeout.ms': longSession,
    'heartbeat.interval.ms': beatTime,
  }, { 'auto.offset.reset': 'earliest' })
  const calls = promising(producer, consumer)
  try {
    await connect(producer)
    producer.setPollInterval(pollMs)
    await connect(consumer)
    consumer.setDefaultConsumeTimeout(pollTime)
    consumer.subscribe([input])
    await calls.init()
    await steps.at('ready')
    while (!steps.isStopped) {
      const messages = await calls.poll()
      if (messages.length === 0) continue
      await steps.at('polled')
      await transaction(producer, calls, { output, steps }, messages)
      if (steps.rewind) await rewind(calls, consumer)
      steps.rewind = false
    }
  } catch (error) {
    throw fenced.has(error.code) ? new Fenced(error) : error
  } finally {
    await Promise.allSettled([consumer, producer].map((c) => promisify((done) => c.disconnect(done))()))
  }
}

// One transaction. An error that only an abort can heal is healed here.
async function transaction (producer, calls, { output, steps }, messages) {
  let commit
  try {
    await calls.begin()
    commit = await fill(producer, calls, { output, steps }, messages)
    if (commit) await calls.commit()
  } catch (error) {
    if (error.isFatal || fenced.has(error.code)) throw error
    await calls.abort()
    steps.rewind = true
    steps.say('retry', error)
    return
  }
  if (!commit) {
    await calls.abort()
    steps.rewind = true
  }
  await steps.at(commit ? 'committed' : 'aborted')
}

// Does all of a transaction but its end; false: it is to be aborted.
async function fill (producer, calls, { output, steps }, messages) {
  const send = async (all) => {
    const reports = new Promise((resolve, reject) => {
      let left = all.length
      if (left === 0) resolve()
      producer.removeAllListeners('delivery-report')
      producer.on('delivery-report', (error) => {
        if (error) reject(error)
        else if (--left === 0) resolve()
      })
    })
    for (const m of all) {
      producer.produce(output, m.partition, Buffer.from(m.value.toString().toUpperCase()), m.key)
    }
    await reports
  }
  await send(messages.slice(0, 1))
  if (!await steps.at('first')) return false
  await send(messages.slice(1))
  if (!await steps.at('sent')) return false
  const next = new Map(messages.map(({ topic, partition, offset }) =>
    [partition, { topic, partition, offset: offset + 1 }]))
  await calls.offsets([...next.values()])
  return steps.at('offsets')
}

// Goes back to where the last committed transaction ended.
async function rewind (calls, consumer) {
  for (const p of await calls.committed(consumer.assignments())) {
    await calls.seek({ topic: p.topic, partition: p.partition, offset: p.offset === undefined ? 0 : p.offset })
  }
}
