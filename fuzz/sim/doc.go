// Package sim runs the storage of a broker, from metadata to partitions, through a life made from one number: clients
// that pipeline, repeat, lose answers, skip and renumber; readers; retention and deletion; process deaths and power
// cuts, between two operations, in the middle of one, and during the recovery from the last; failing flushes, full
// disks, clock jumps. After every step it compares each partition with fuzz/model.
//
// What runs is the product: store.Store with everything below it, on vfs.Mem and a simulated clock. One goroutine
// drives. The store's own goroutines run in a bubble of testing/synctest, which tells when all of them have come to
// rest; the flush of a commit round stops at a gate until the script lets it go on. So equal seeds give equal runs, but
// for one in about seventy where a Tick wakes the flusher half-way, and a script can be cut down to the operations that
// matter: every operation finds its meaning in the state it meets.
//
// The files txn_*.go do the same with transactions: engine.Engine with coordinator and groups over that store; clients
// of both generations with their zombies, delayed and half-verified batches, lost answers, timeouts, group offsets and
// a topic that is deleted and made anew. What the partitions show after every step must agree with what clients asked
// for and were answered (I8 to I12, I14 at a clean restart), and in the end nothing may hang. TestEveryCrash ends one
// transaction at every change of a file.
package sim
