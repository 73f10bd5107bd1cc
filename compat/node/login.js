// How the programs come in: the JSON file that the variable COMPAT_LOGIN names. Without it, as they are. Its files are
// PEM.
'use strict'
const fs = require('node:fs')

const login = process.env.COMPAT_LOGIN && JSON.parse(fs.readFileSync(process.env.COMPAT_LOGIN, 'utf8'))

// What kafkajs needs to be told.
exports.kafkajs = () => {
  if (!login) return {}
  const options = {}
  if (login.protocol.endsWith('SSL')) {
    options.ssl = { ca: [fs.readFileSync(login.ca)] }
    if (login.keyStore) options.ssl.key = options.ssl.cert = fs.readFileSync(login.keyStore)
  }
  if (login.protocol.startsWith('SASL')) {
    options.sasl = { mechanism: login.mechanism.toLowerCase(), username: login.user, password: login.password }
  }
  return options
}

// What librdkafka needs to be told, by its names.
exports.librdkafka = () => {
  if (!login) return {}
  const options = {
    'security.protocol': login.protocol.toLowerCase(), 'sasl.mechanism': login.mechanism,
    'sasl.username': login.user, 'sasl.password': login.password, 'ssl.ca.location': login.ca,
    'ssl.certificate.location': login.keyStore, 'ssl.key.location': login.keyStore,
  }
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== ''))
}
