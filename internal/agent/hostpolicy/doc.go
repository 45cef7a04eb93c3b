// Package guard keeps a worker's machine its owner's: it decides, from how the
// machine does, when the worker takes nothing new and when tasks make way.
//
//	host, GPUs ──► thresholds ──┐
//	the clock ───► hours ───────┼──► Worker.Constrain, Preempt, Freeze, Withhold
//	processes ───► owner ───────┘
//
// Everything is looked at every Every, and what is decided follows from the look
// and the looks before it; the deciding takes the time as an argument.
//
// # Thresholds
//
// A share of the machine in use, by whomever, that is over its threshold closes
// the worker for new tasks with that very look. It opens when the share has been
// at least Slack under the threshold for the cool-down, in every look. So it changes its
// mind at most once in a cool-down. Running tasks go on. What cannot be measured any more for
// blindTimeout does not close it.
//
// # Hours
//
// Outside its hours the worker takes nothing new. Hours are those of the wall:
// when the clock is put forward a range that begins in the missing hour begins
// at its end, and when it is put back the hour that comes twice counts twice.
//
// # The owner
//
// A process that is no task's and holds memory of a GPU is the owner's, unless
// it draws the desktop with little memory or is a small daemon of root's. The device is then
// withheld from new tasks. Tasks on it that have a checkpoint are preempted, others are
// frozen, which gives back the device's time but not its memory. When nothing of the owner's was
// seen on it for the cool-down, frozen tasks go on and the device is offered again.
//
// A frozen task stays frozen when the worker's process ends. Its next life lets
// go on what it does not freeze itself.
package hostpolicy
