// Package vfs is the only door to files: OS for the machine's, Mem for tests and the simulator, Inject for faults
// around either. Nothing here retries a failed flush, and no error is swallowed.
//
// # What Mem believes about disks
//
// A Mem is one process's view of a disk. The disk has two states: what processes see, and what is durable. Crash
// keeps the durable state exactly and lets chance, seeded, decide about the difference, piece by piece and
// independently:
//
//   - Content is dirty in sectors of 512 bytes from the write until a flush (File.Datasync, FS.SyncAll) that began
//     after it. Each dirty sector (of CrashPlan.SectorSize) has, after a crash, its newest content, its durable
//     content, or, with Garble, a torn or random one. A byte that was durable and has not been changed since is
//     never lost, also in a sector that was written again. Of several unflushed writes to one place only the newest
//     can survive.
//   - Length is a thing of its own: after unflushed changes it is the durable one, the newest, the smallest since
//     the flush, or any between. Bytes inside it that did not survive read as they were durable, zero where nothing
//     was.
//   - Every creation, removal and rename is pending until its directory is flushed (FS.SyncDir, Datasync of the
//     opened directory, FS.SyncAll). After a crash each pending change has happened or has not, in any combination:
//     a later one without an earlier one, too, except that a name is free before another file gets it.
//   - A rename is atomic: the file is at one of its names, and the target it replaced is there or the new file is. A
//     rename between two directories is made durable by a flush of either, and comes with all changes before it, in
//     a flush and in a crash.
//   - Flushing a file does not flush its entry. Flushing a directory flushes neither the files in it nor its own
//     entry in its parent.
//   - A flush that fails (FailSync, or Inject of "datasync") leaves its sectors lost: clean, readable, and not
//     durable, though a crash may find them. The next flush succeeds and does not write them, but does store the
//     length. Uncache brings the durable bytes back to sight; writing a sector again makes it dirty as a whole. The
//     error is reported once by every File open at that time, and by the next one opened if none had reported it.
//   - Uncache fails while a page of the range is dirty or a mapping covers part of it.
//   - StartWriteback and Allocate make nothing durable; Allocate reserves blocks against SetCapacity.
//   - Kill ends the process alone: the next one sees everything, nothing becomes durable by it, lock files are free.
//   - After Kill or Crash the old Mem and its files answer ErrDead; a call under way either has had its effect
//     before or has none. Old mappings stay readable and no longer change.
//
// # Mappings of Mem
//
// Each mapping is a slice of its own, filled when it is made and written by whoever writes the file, in that
// goroutine and under no lock that a reader of the mapping takes. Up to 16 MiB it lies in the Go heap, where the
// race detector reports a reader that was not told of the bytes by the writer's publication (I2); a larger one is
// anonymous memory that costs what is touched and is invisible to the detector. Bytes behind the end of the file
// read as zero there, where a disk's mapping would fault. Unmap overwrites a heap slice with 0xDB, which the
// detector sees as a write, and takes larger ones away.
package vfs
