// Package schedules submits the jobs of schedules at their times.
//
// Package cron decides, the store remembers. A decision about a run is one transaction, which also moves the schedule to its next run: with the
// new job, if one is started, in the batch of the engine, else by RecordRun. So after a crash a run is either decided, or is decided then. If
// the answer of the engine is lost, the submission is repeated with the same idempotency key, under which the engine accepts one job.
//
// One decision is made at a time, and none while a user changes a schedule: what a change has answered is valid for the next run.
//
// The time is that of the clock of the machine, because that is what a user plans with; the clock may jump. If it jumps forward, runs were missed, and the
// policy of the schedule applies. If it is set back, no run is started twice, because decided runs are not looked at again; after a jump of more than
// cron.MaxSetBack, the schedule continues from the new time.
//
// A job is submitted with the rights that the key of the schedule's owner has at that time.
package schedules
