// Package meter measures running attempts: it takes a series of samples of each, computes the attempt's usage from them,
// and watches the limits that the kernel does not enforce.
//
//	processes, groups, folders, devices ──► tick ──► Sample ──► the attempt's log
//	                                          │         └─────► sums ──► Usage
//	                                          └──► limit ──► Warned, Exceeded
//
// One goroutine measures all attempts of a worker, and sleeps while there are none; another one walks their folders, which
// may take long.
//
// # What is measured
//
// CPU, memory and processes are those that the attempt's control group counts. Without a group they are those of its process
// tree: the main process, its descendants, and the members of its session or process group. Processes that end between two
// samples are missed then, and so is a daemon that left all three. Memory without a group is what is resident and not shared.
// Where no group counts them, bytes read and written are those that the processes transferred from and to disks. The processes
// of an attempt are the members of its group; all processes of the machine are read only for attempts without one. Network
// traffic is that of the whole host without loopback: the kernel does not count it by process. Folders count by their blocks.
//
// The first sample is taken after about a second, then one every five seconds in the first hour, at times that all attempts
// have in common, so that they share what is read. The interval then grows with the age of the attempt to a minute, so that the
// series of a month is still small. An unreachable worker leaves a gap.
//
// # Energy and cost
//
// Energy is the power of the granted devices over time. Of a shared device it is the attempt's share by memory in use, and
// unknown where that is unknown. Cost is the worker's price per hour times the wall time.
package meter
