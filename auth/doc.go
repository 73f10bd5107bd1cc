// Package auth decides who somebody is and what they may do: SASL logins against stored credentials (KIP-84, KIP-554),
// names of principals out of client certificates (KIP-371), and access control lists with Kafka's rules (KIP-11,
// KIP-290, StandardAuthorizer). Credentials and rules live in the metadata store under "scram/" and "acl/"; readers go
// through immutable snapshots. It knows nothing of connections and of the protocol's requests.
package auth
