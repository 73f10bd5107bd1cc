package main

// The reasons of differences in transactions.
const (
	whyRepeat = "A repetition of a batch that is stored is answered with its offset, also when its transaction is over, and " +
		"the coordinator is not asked: the client has lost the answer and must not be told that nothing was written. Kafka " +
		"verifies first, and a Produce of version 12 opens a new transaction for the repetition."
	whyOwner = "A pair that has been replaced belongs to an instance that is fenced; it may not abort the transaction of the " +
		"one that fenced it. Kafka looks at the pair only when no transaction is open."
	whyAborted = "The list of aborted transactions is in the order of their first offsets, which clients that do not sort " +
		"need, and has those that reach into the records sent. Kafka has the order of the markers and all up to the next " +
		"index entry."
	whyIsolation = "Levels other than 0 and 1 do not exist; whoever asks for one sees what is committed. Kafka fails on them."
	whyAgain     = "An id that a request names again is refused with 42: an answer for each time could be thousands of times as " +
		"large as the request. Kafka answers each."
	whyTimedOut = "The client committed, and the coordinator had aborted before: the client has been fenced (KAFKA-20785). " +
		"Kafka 4.4.0 answers 48, which is fatal to clients in another way."
)

func transactionExpectations() []expectation {
	const noStart, start = "base -1, time -1, start -1", "base -1, time -1, start 0"
	refused := func(script, code string, count int, steps ...string) expectation {
		return expectation{script, steps, "code " + code + ", " + noStart, "code " + code + ", " + start, count, whyStart}
	}
	const dup, plain = "code 0, base *, time 1760000000000, start *", "code 0, base *, time -1, start *"
	return []expectation{
		refused("txn-fence", "47", 12, "Ongoing, TV*: *. write *"),
		refused("txn-write", "47", 6, "another epoch: *. write *"),
		refused("txn-write", "48", 3, "partition not in the transaction: *. write *", "no transaction: *. write *"),
		refused("txn-write", "120", 2, "partition not in the transaction: *. write *", "no transaction: *. write *"),
		refused("txn-write", "49", 6, "unknown transactional id: *. write *", "another producer id: *. write *"),
		refused("txn-write", "17", 1, "internal topic: *. write *"),
		refused("txn-sequence", "47", 6, "repetition after the *, TV2: *. write *"),
		{"txn-fence", []string{"Ongoing, another epoch, TV*. init *"}, "code 51, -1/-1", "code 90, -1/-1", 2, whyOwner},
		{"txn-fence", []string{"Ongoing, another epoch, TV*. state"}, "code 0, CompleteAbort, *", "code 0, Ongoing, *", 2,
			whyOwner},
		{"txn-fence", []string{"Ongoing, another epoch, TV*. log"}, "* marker abort, *", "code 0, stable 0 of 1; 0..0 *", 2,
			whyOwner},
		{"txn-tell", []string{"several ids, TV*: 2. describe"}, "* code 0 Empty", "* code 42 ", 2, whyAgain},
		{"txn-sequence", []string{"repetition after the *, TV1: *. write v9 *"}, "code 48, *", "code 0, base 0, *", 2,
			whyRepeat},
		{"txn-sequence", []string{"repetition after the *, TV1: *. write v11 *"}, "code 120, *", "code 0, base 0, *", 2,
			whyRepeat},
		{"txn-sequence", []string{"repetition after the *, TV1: *. state"}, "code 0, Ongoing, *", "code 0, Complete*", 2,
			whyRepeat},
		{"txn-sequence", []string{"*. write *"}, dup, plain, 7, whyDuplicate},
		{"txn-sequence", []string{"first batch from 7, TV1: *. write *"}, "code 0, base 0, *", "code 45, " + start, 1, whyEmpty},
		{"txn-sequence", []string{"first batch from 7, TV1: *. log"}, "code 0, stable 0 of 1; *", "code 0, stable 0 of 0", 1,
			whyEmpty},
		{"txn-end-2", []string{"CompleteAbort, commit, retry: *. commit *"}, "code 48, -1/-1", "code 90, -1/-1", 1, whyTimedOut},
		{"txn-markers", []string{"retry of the aborted *. write *"}, dup, plain, 1, whyDuplicate},
		{"txn-markers", []string{"retry of the aborted *. write *, 1 from 1"}, "code 45, *", "code 0, base 2, *", 1,
			"The repetition before it did not ask the coordinator, so nothing lies between the two batches. In Kafka it began " +
				"a verification, and the batch is behind the lowest number seen by that."},
		{"txn-markers", []string{"retry of the aborted *. log"}, "*; 1..1 *", "*; 2..2 *", 1,
			"The batch of the row above is stored."},
		{"txn-markers", []string{"two transactions, *. log"}, "*, P12 aborted from 1, P11 aborted from 0; *",
			"*, P11 aborted from 0, P12 aborted from 1; *", 1, whyAborted},
		{"txn-isolation", []string{"open: isolation 1, *", "decided: isolation 1, *", "*: one byte from 3"},
			"code 0, stable *, aborted *", "code 0, stable *, aborted *", 9, whyAborted},
		{"txn-isolation", []string{"open: isolation 2, from *", "decided: isolation 2, from *"}, "code -1, *",
			"code *, stable *", 16, whyIsolation},
		{"txn-isolation", []string{"open: isolation 2, list *", "decided: isolation 2, list *"}, "code -1, *",
			"code 0, *", 12, whyIsolation},
	}
}
