// Package devices allocates a worker's GPUs: it knows which attempt has which device, checks each device when it is released,
// and keeps unhealthy devices in quarantine.
//
//	Acquire ──► baseline: memory in use by no listed process    (of an idle device)
//	 │
//	task        its environment shows its devices and hides all others
//	 │
//	Release ──► orphans of the task end ──► memory is freed ──► health is read ──► free
//	                                             │                   │
//	                                        quarantine: memory, silent, fault
//
// # What counts as clean
//
// Readings that were requested after the end of the task show no process of it on the device, no more memory in use than before,
// and no fault. Drivers take a moment to free memory, and readings come every two seconds (those of MIG instances every ten), so
// Release waits, for a bounded time.
//
// Memory is compared without what listed processes of others hold: the owner of the machine may start and end programs meanwhile.
// Memory that is then above the baseline by more than a tolerance was not freed. The baseline follows changes while no task has the
// device, but not what tasks leave within the tolerance: many small leaks add up. The memory of a shared device is compared when
// its last task ends. A device that never reported its memory is not checked for it.
//
// A process on the device belongs to the task if it or one of its ancestors has the task's tag in the environment. A process
// without any tag that descends from the task's supervisor counts as well, if no other task has the device. All other processes
// are left alone.
//
// # Quarantine
//
// A device whose memory was not freed, or that cannot be read, is checked every half minute and released when it is healthy. After
// a fault (an XID, an uncorrected memory error, a device that needs a reset; package gpu defines them) it is released only after
// an administrator ran muster workers heal and the device is healthy. Quarantines, and the baselines of devices in use, survive a
// restart of the worker in a file of its data dir. A restart of the machine ends quarantines that are only about memory.
package devices
