// The two JavaScript clients: node client.js NAME produce BOOTSTRAP TOPIC CODEC IN OUT PACE (or plain: not idempotent)
//                             node client.js NAME consume BOOTSTRAP TOPIC ENDS OUT
//                         and node client.js NAME loop BOOTSTRAP IN OUT GROUP ID INSTANCE PROTOCOL
'use strict'
const fs = require('node:fs')
const { looping } = require('./steps.js')

const libraries = { 'kafkajs': './kafkajs.js', 'confluent-js': './confluent.js' }

const bytes = (s) => (s === null ? null : Buffer.from(s, 'base64'))
const base64 = (b) => (b === null || b === undefined ? null : b.toString('base64'))

// Records to write, with Buffers (null is null) in place of base64.
const read = (path) => fs.readFileSync(path, 'utf8').trimEnd().split('\n').map((line) => {
  const r = JSON.parse(line)
  return {
    partition: r.p, time: r.t, key: bytes(r.k), value: bytes(r.v),
    headers: (r.h || []).map((h) => ({ key: h.k, value: bytes(h.v) })),
  }
})

// A function that writes one line at once, so that others see acknowledgements arrive.
const writer = (path) => {
  const fd = fs.openSync(path, 'w')
  return (line) => fs.writeSync(fd, JSON.stringify(line) + '\n')
}

async function main ([name, job, bootstrap, topic, ...rest]) {
  const library = require(libraries[name])
  if (job === 'loop') return looping(library, [bootstrap, topic, ...rest])
  if (job === 'produce' || job === 'plain') {
    const [codec, input, output, pace] = rest
    const put = writer(output)
    await library.produce({
      bootstrap, topic, codec, plain: job === 'plain', pace: Number(pace), records: read(input),
      acknowledge: (i, offset) => put({ i, o: offset }),
      fail: (i, error) => put({ i, o: -1, e: String(error) }),
    })
  } else if (job === 'consume') {
    const [ends, output] = rest
    const put = writer(output)
    await library.consume({
      bootstrap, topic, ends: ends.split(',').map(Number),
      record: (r) => put({
        p: r.partition, o: r.offset, t: r.time, k: base64(r.key), v: base64(r.value),
        h: r.headers.map((h) => ({ k: h.key, v: base64(h.value) })),
      }),
    })
  } else {
    throw new Error('no such job: ' + job)
  }
}

main(process.argv.slice(2)).then(() => process.exit(0), (error) => {
  console.error(error)
  process.exit(1)
})
