// Package hostpolicy keeps a worker's machine usable for its owner: from the state of the machine it decides when the worker takes
// no new tasks, and when running tasks are preempted or frozen.
//
//	host, GPUs ──► thresholds ──┐
//	the clock ───► hours ───────┼──► Worker.Constrain, Preempt, Freeze, Withhold
//	processes ───► owner ───────┘
//
// All of it is checked once per Interval. A decision depends only on this check and earlier ones, and on the time, which is an argument.
//
// # Thresholds
//
// When the part of the machine that is in use, by any program, exceeds its threshold, the worker takes no new tasks from that check
// on. It takes tasks again after the part has been at least Slack below the threshold for the cool-down, in every check. So it changes
// at most once per cool-down. Running tasks continue. A value that could not be measured for blindTimeout does not count.
//
// # Hours
//
// Outside its hours the worker takes no new tasks. Hours are local time: when clocks are set forward, a range that begins in the
// missing hour begins at its end, and when they are set back, the repeated hour counts twice.
//
// # The owner
//
// A process that belongs to no task and holds memory of a GPU belongs to the owner, unless it draws the desktop with little memory or is
// a small daemon of root. The device is then withheld from new tasks. Tasks on it with a checkpoint are preempted, others are frozen,
// which frees the device's time but not its memory. When no process of the owner was seen on it for the cool-down, frozen tasks
// continue and the device is offered again.
//
// A frozen task stays frozen when the worker's process ends. After a restart the worker continues tasks that it does not freeze again.
package hostpolicy
