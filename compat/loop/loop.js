// Reads payments, writes them processed, each exactly once: node loop.js HOST:PORT.
const { Kafka } = require('kafkajs')

const kafka = new Kafka({ brokers: [process.argv[2]], retry: { retries: 50, maxRetryTime: 1000 } })
const producer = kafka.producer({
  transactionalId: 'processor-0', // the same after a restart: it fences what was before
  idempotent: true,
  maxInFlightRequests: 1,
})
const consumer = kafka.consumer({ groupId: 'processors', sessionTimeout: 6000, heartbeatInterval: 1000 })

async function main () {
  await producer.connect()
  await consumer.connect()
  await consumer.subscribe({ topics: ['payments'], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset }) => {
      const transaction = await producer.transaction()
      try {
        await transaction.send({
          topic: 'processed',
          messages: batch.messages.map(({ key, value }) =>
            ({ partition: batch.partition, key, value: value.toString().toUpperCase() })),
        })
        const offset = String(BigInt(batch.lastOffset()) + 1n)
        await transaction.sendOffsets({
          consumerGroupId: 'processors',
          topics: [{ topic: batch.topic, partitions: [{ partition: batch.partition, offset }] }],
        })
        await transaction.commit()
        resolveOffset(batch.lastOffset())
      } catch (error) {
        await transaction.abort() // if this fails, another instance has taken over
        consumer.seek({ topic: batch.topic, partition: batch.partition, offset: batch.firstOffset() })
      }
    },
  })
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})
