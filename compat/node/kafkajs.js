// kafkajs, its idempotent producer. Its consumer reads only as a member of a group, so there is no consume here.
'use strict'
process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'
const { setTimeout: sleep } = require('node:timers/promises')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const lz4 = require('lz4-napi')
const zstd = require('@mongodb-js/zstd')
const login = require('./login.js')
const { Fenced, perTransaction, sessionTime, beatTime, pollTime } = require('./steps.js')

// The library brings gzip; it leaves the others to packages of the user's choice.
CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: async (buffer) => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => zstd.compress(encoder.buffer),
  decompress: async (buffer) => zstd.decompress(buffer),
})
const types = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4, zstd: CompressionTypes.ZSTD,
}

const batchRecords = 5000
const batchBytes = 920000 // of keys and values; the rest of a batch stays below 1,048,588 bytes
const paceRecords = 10

// One send is one request with one batch for each partition, so the records are cut into sends here.
function * cut (records, most) {
  let from = 0
  let size = 0
  for (let i = 0; i < records.length; i++) {
    const r = records[i]
    const n = (r.key ? r.key.length : 0) + (r.value ? r.value.length : 0)
    if (i > from && (i - from === most || size + n > batchBytes)) {
      yield [from, i]
      from = i
      size = 0
    }
    size += n
  }
  yield [from, records.length]
}

const message = (r) => {
  const headers = {}
  for (const { key, value } of r.headers) {
    headers[key] = key in headers ? [].concat(headers[key], value) : value
  }
  return { partition: r.partition, timestamp: String(r.time), key: r.key, value: r.value, headers }
}

exports.produce = async ({ bootstrap, topic, codec, plain, pace, records, acknowledge }) => {
  const kafka = new Kafka({
    clientId: 'compat', brokers: [bootstrap], ...login.kafkajs(), logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 100, maxRetryTime: 500, retries: 100 },
  })
  const producer = kafka.producer(plain ? {} : { idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (const [from, to] of cut(records, pace > 0 ? paceRecords : batchRecords)) {
    const answers = await producer.send({
      topic, acks: -1, compression: types[codec], messages: records.slice(from, to).map(message),
    })
    const next = new Map(answers.map((a) => [a.partition, Number(a.baseOffset)]))
    for (let i = from; i < to; i++) {
      const { partition } = records[i]
      acknowledge(i, next.get(partition))
      next.set(partition, next.get(partition) + 1)
    }
    if (pace > 0) await sleep(pace)
  }
  await producer.disconnect()
}

const fenced = new Set(['PRODUCER_FENCED', 'INVALID_PRODUCER_EPOCH', 'FENCED_INSTANCE_ID'])

// The cause of an error that the library has wrapped.
const cause = (error) => {
  while (error.cause) error = error.cause
  return error.originalError || error
}

exports.loop = async ({ bootstrap, input, output, group, id, steps }) => {
  const kafka = new Kafka({
    clientId: 'compat', brokers: [bootstrap], logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 100, maxRetryTime: 500, retries: 100 },
  })
  const producer = kafka.producer({ transactionalId: id, idempotent: true, maxInFlightRequests: 1 })
  const consumer = kafka.consumer({
    groupId: group, sessionTimeout: sessionTime, heartbeatInterval: beatTime, maxWaitTimeInMs: pollTime,
    readUncommitted: false,
  })
  let fail
  const failed = new Promise((resolve) => { fail = resolve })
  try {
    await producer.connect()
    // The first transaction initializes the producer; an empty one is not sent.
    await steps.at('ready')
    await consumer.connect()
    await consumer.subscribe({ topics: [input], fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      partitionsConsumedConcurrently: 1,
      eachBatch: async ({ batch, resolveOffset, isRunning, isStale }) => {
        for (let i = 0; i < batch.messages.length && isRunning() && !isStale() && !steps.isStopped;) {
          const messages = batch.messages.slice(i, i + perTransaction)
          let done
          try {
            done = await transaction(producer, { output, group, steps }, batch, messages)
          } catch (error) {
            fail(error)
            return
          }
          if (!done) {
            consumer.seek({ topic: input, partition: batch.partition, offset: messages[0].offset })
            return
          }
          i += messages.length
          resolveOffset(messages[messages.length - 1].offset)
        }
      },
    })
    const error = await Promise.race([steps.stopped, failed])
    if (error) throw fenced.has(cause(error).type) ? new Fenced(error) : error
  } catch (error) {
    throw fenced.has(cause(error).type) ? new Fenced(error) : error
  } finally {
    await Promise.allSettled([consumer.disconnect(), producer.disconnect()])
  }
}

// One transaction of records of one partition; false: it was aborted.
async function transaction (producer, { output, group, steps }, batch, messages) {
  await steps.at('polled')
  const t = await producer.transaction()
  const send = (all) => t.send({
    topic: output, acks: -1,
    messages: all.map((m) => ({ partition: batch.partition, key: m.key, value: m.value.toString().toUpperCase() })),
  })
  let commit
  try {
    await send(messages.slice(0, 1))
    commit = await steps.at('first')
    if (commit) {
      if (messages.length > 1) await send(messages.slice(1))
      commit = await steps.at('sent')
    }
    if (commit) {
      const offset = String(BigInt(messages[messages.length - 1].offset) + 1n)
      await t.sendOffsets({ consumerGroupId: group,
        topics: [{ topic: batch.topic, partitions: [{ partition: batch.partition, offset }] }] })
      commit = await steps.at('offsets')
    }
    if (commit) await t.commit()
  } catch (error) {
    if (fenced.has(cause(error).type)) throw error
    await t.abort()
    steps.say('retry', error)
    return false
  }
  if (!commit) await t.abort()
  await steps.at(commit ? 'committed' : 'aborted')
  return commit
}
