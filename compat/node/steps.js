// The read-process-write loop, one step at a time: node client.js NAME loop BOOTSTRAP IN OUT GROUP ID INSTANCE PROTOCOL
'use strict'
const readline = require('node:readline')
const { setTimeout: sleep } = require('node:timers/promises')

const fencedStatus = 3
exports.perTransaction = 10 // records at most
exports.sessionTime = 1500 // ms
exports.beatTime = 300
exports.pollTime = 100

// Another instance has taken over: whoever sees this has to end.
class Fenced extends Error {}
exports.Fenced = Fenced

// Tells the one who started the program which step is done, and waits for the answer.
class Steps {
  constructor () {
    this.answers = []
    this.waiting = null
    this.stopped = new Promise((resolve) => { this.stop = resolve })
    this.isStopped = false
    const lines = readline.createInterface({ input: process.stdin })
    lines.on('line', (line) => this.take(line))
    lines.on('close', () => {
      this.isStopped = true
      this.stop()
      this.take('stop')
    })
  }

  take (answer) {
    if (this.waiting) this.waiting(answer)
    else this.answers.push(answer)
    this.waiting = null
  }

  // Names a step that is done. It says whether to go on; else the transaction is to be aborted.
  async at (name) {
    console.log(name)
    if (this.answers.length > 0) return this.answers.shift() === 'go'
    if (this.isStopped) return false
    return await new Promise((resolve) => { this.waiting = resolve }) === 'go'
  }

  say (what, error) { console.log(what, String(error.stack || error).replaceAll('\n', ' ')) }
}

// Runs the loop again and again until it ends without an error or is fenced.
exports.looping = async (library, [bootstrap, input, output, group, id, instance]) => {
  const steps = new Steps()
  for (;;) {
    try {
      return await library.loop({ bootstrap, input, output, group, id, instance, steps })
    } catch (error) {
      if (error instanceof Fenced) {
        steps.say('fenced', error)
        process.exit(fencedStatus)
      }
      steps.say('again', error)
      await sleep(exports.pollTime)
    }
  }
}
