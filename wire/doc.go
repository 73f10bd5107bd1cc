// Package wire cuts Kafka protocol frames from a stream within limits, hands their bodies to kmsg, and builds answers
// that may borrow the bytes of mapped segments. It starts no goroutines and knows no type of the engine. Layouts are
// those of Kafka's protocol guide; version ranges and client quirks are listed in docs/protocol.md.
//
// Everything read here is hostile until it has been walked: no length, count or claim is allocated for before it has
// been held against the bytes that are there.
package wire
