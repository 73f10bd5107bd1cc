package main

import "github.com/alecthomas/kong"

// helpTexts are the help texts and lists of choices that are too long for the line of their flag.
var helpTexts = kong.Vars{
	"codecs":              "none,gzip,snappy,lz4,zstd",
	"levels":              "read_committed,read_uncommitted",
	"check_config":        "The daemon's settings, where they differ from the defaults.",
	"check_repair":        "Cut damaged logs so that they open again; says what is lost, and asks.",
	"client_bootstrap":    "Where the daemon listens (HOST:PORT).",
	"client_security":     "How to come in, in the form of Kafka's client properties.",
	"acl_operation":       "What: all, read, write, create, delete, alter, describe, ...; may be repeated.",
	"user_password":       "Its first line is the password; without it that of standard input.",
	"user_mechanism":      "SCRAM-SHA-256 or SCRAM-SHA-512; may be repeated. PLAIN logs in by either.",
	"user_data":           "Data directory of a stopped daemon to change instead of a running one.",
	"consume_from":        "Where to begin; @MS: at a time in milliseconds.",
	"consume_isolation":   "Whether undecided transactions are read: read_committed or read_uncommitted.",
	"group_state":         "Only this state (Empty, Stable, ...); may be repeated.",
	"reset_topic":         "All partitions of a topic, or those listed; may be repeated.",
	"reset_time":          "To the first record of this time, such as 2026-01-31T12:00:00Z, or later.",
	"reset_duration":      "To the first record of so long ago (such as 90m), or later.",
	"txn_state":           "Only this state (Ongoing, PrepareCommit, CompleteAbort, ...); may be repeated.",
	"txn_start":           "First offset of the transaction, as find-hanging shows it.",
	"txn_force":           "Although the coordinator knows the transaction; a later commit keeps its other partitions.",
	"txn_max_timeout":     "The longest transaction timeout (transaction.max.timeout.ms); younger ones are left out.",
	"produce_header":      "A header of every record; may be repeated.",
	"produce_acks":        "all: durable, each record once; 1: written; 0: not asked.",
	"produce_compression": "Codec of the batches: none, gzip, snappy, lz4 or zstd.",
	"serve_listen":        "Address for clients; 127.0.0.1:9092 by default.",
	"serve_advertise":     "Address told to clients; by default the one they came in on.",
	"serve_admin":         "Metrics, health and profiles; 127.0.0.1:9644 by default, 'none' for none.",
	"serve_durability":    "When a write is acknowledged; fsync by default.",
	"serve_config":        "Settings in the form of Kafka's server.properties.",
	"serve_log_format":    "Form of the log on standard error: text or json.",
	"topic_partitions":    "Number of partitions; -1: the daemon's num.partitions.",
	"topic_unset":         "Take a setting back to the daemon's default; may be repeated.",
}
