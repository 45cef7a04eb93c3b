// Package devices is the board of a worker's GPUs: who has which, how each was
// before, and which are given to nobody.
//
//	Take ──► base: memory in use by nobody known    (of an idle device)
//	 │
//	task     its environment shows its devices and hides all others
//	 │
//	Give ──► strays of the task end ──► memory is back ──► health is read ──► free
//	                                        │                   │
//	                                   quarantine: memory, silent, fault
//
// # What counts as clean
//
// Readings that were asked for after the end of the task say that no process of
// it is on the device, that the memory in use is what it was, and that nothing is
// wrong. Drivers take a moment to free memory, and readings come every two
// seconds (those of MIG instances every ten), so Give waits, for a bounded time.
//
// Memory is compared without what listed processes of others hold: what the
// owner of the machine starts or ends meanwhile is nobody's fault. What is then
// above the base by more than a tolerance was not given back. The base follows
// what changes while no task has the device, and not what tasks leave within the
// tolerance: many small losses are found as one. Of a device that several tasks
// share, memory is compared when the last one has left. A device that never told
// its memory is not asked for it.
//
// A process on the device is the task's if it, or one that it descends from, has
// the task's mark in the environment. One without any mark that descends from
// the task's supervisor counts as well, if nobody else has the device. All others
// are left alone.
//
// # Quarantine
//
// A device whose memory was not given back, or that cannot be read any more, is
// looked at every half minute and released when it is well. A fault (an XID, an
// uncorrected memory error, a device that asks for its reset) needs the word of an
// administrator, muster workers heal, after which the device has to show that it
// is well. What a fault is, package gpu knows. A quarantine, and the base of
// devices that are in use, survive the worker in a file of its data dir; a restart of the
// machine ends what is only about memory.
package devices
