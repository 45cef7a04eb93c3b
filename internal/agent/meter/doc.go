// Package meter measures attempts while they run: a series of samples for each,
// from which its usage follows, and a watch over limits that no kernel enforces.
//
//	processes, groups, folders, devices ──► tick ──► Sample ──► the attempt's log
//	                                          │         └─────► sums ──► Usage
//	                                          └──► limit ──► Warned, Exceeded
//
// One goroutine measures all attempts of a worker, and sleeps while there is none;
// another one walks their folders, which may take long.
//
// # What is measured
//
// CPU, memory and processes are those that the attempt's control group counts,
// where it has one; else those of its process tree: the main process, what
// descends from it, and what is in its session or process group. What ends
// between two ticks is missed then, and so is a daemon that left all three. Memory
// without a group is what is resident and not shared. Bytes read and written are
// those that went to disks, of processes that were seen, where no group counts
// them. The processes of an attempt are the members of its group; all
// processes of the machine are read only for attempts without one. Network traffic is the
// whole host's without loopback: the kernel does not count it by process. Folders
// count by the blocks that they take.
//
// A sample is taken after about a second, then every five seconds in the first hour, at
// times that all attempts have in common, so that they share what is read; the
// time between two then grows with the age of the attempt to a minute, so that
// the series of a month is still small. A worker that is away leaves a gap.
//
// # Energy and cost
//
// Energy is the power of the granted devices over time. Of a shared device it is
// the part that corresponds to the attempt's part of the memory in use, and is
// unknown where that is. Cost is the worker's price per hour times the wall time.
package meter
