// Package cases holds the failure cases that docs/cases.md lists, one test function each, named after its case. Every
// scenario is written once against the interface engine and runs in two sizes: in memory, under virtual time and with
// injected faults as part of the ordinary tests; and with SEKALI_SIZE=full against the real binary on a real disk, with
// real SIGKILLs and a really full file system (make cases, as root).
package cases
