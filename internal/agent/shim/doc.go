// Package shim stands by the processes of a worker's tasks, and outlives the
// worker: it is killed, upgraded or restarted, and its tasks do not notice.
//
//	worker ──────────── socket ──────────── shim ───────────── tasks
//	Client                                  server             17.3#2
//	 ├ line ─ frames ─────────────── session ─┤                 ├ sh
//	 └ proc (17.3#2)                          └ attempt (17.3#2) └ python
//	                                             │  pipes, $MUSTER_EVENTS, exit
//	                                             └─► DATA/logs/17/0/3.2.log
//
// A shim is one small process for all tasks of a worker: the same program, started
// with the first task. It is the parent of the tasks' main processes and the reaper
// of whatever they leave behind, and the only one that knows how they end. So it
// does everything that must not wait for a worker: it reads their output into the
// attempts' logs, reads what they say to Muster, stops them at their timeout and at
// the end of their lease, and remembers all of it until the worker says Forget. It
// ends by itself when it holds nothing and no worker is connected.
//
// # Homes
//
// Each shim has a folder, DATA/shim/NAME, which it removes at its end:
//
//	sock  on which it listens; the worker made it, so that it can be called at once
//	key   which a worker must know. A task of the same user may find the socket,
//	      which its sandbox does not keep from it; but it cannot read this, and
//	      whoever descends from the shim is not served
//	pid   the shim's own process, and the device and inode of the folder: in a copy
//	      they are another's, and what the copy names is another worker's
//	pids  the processes of its tasks, by number, start and boot, and by their mark
//
// A worker that starts calls at each home. If somebody answers, it hears what is
// held there and goes on with it. If nobody does, the shim is gone, and what it left
// is ended by the record: a process whose number was given to another one is
// never touched. A shim that cannot be talked to is ended with its tasks, for they
// would run twice.
//
// A shim whose folder was deleted takes nothing new. Once no worker is connected it kills what it has,
// for the next one would not find it and the tasks would run twice, and ends.
//
// There are several homes after an upgrade: the shim of the earlier build keeps what
// it runs, new tasks go to a new one, and the old one ends with its last task.
//
// # The connection
//
// Frames are JSON behind their length; package wire has them all. A shim serves one
// worker: when another one calls, the first is told that it was taken over, and all
// that it had said, such as its last reports, is heard first. A worker takes a shim for
// dead that left several questions unanswered, not by the clock: it may itself have
// stood still. Nothing in a shim waits for a worker. What is new of an attempt (log size, progress, the
// end) is merged until the worker takes it, so that a worker that hangs costs its
// shim a few kilobytes for each attempt and no task a moment. An attempt costs its
// Start, which is about twice its spec, its report, 64 KiB while it prints, and at
// most run.MaxMetrics metrics.
//
// # Logs
//
// A log has one writer at a time: the worker until it calls Start, then the shim.
// Start tells where the worker stopped, and a log that does not end there is
// refused. What the worker has to say while the task runs and after it goes through
// Record.
//
// # How processes are told apart
//
// A shim makes itself the reaper of its orphaned descendants, so that whatever a
// task starts stays below it. A process belongs to an attempt if it is in its main
// process's group or session, if it descends from it, or if the entry Start.Mark is
// in its environment. An orphan with none of these belongs to an attempt that was
// running when the orphan began; once no such attempt runs any more, it is killed.
// Where an attempt has control groups, everything in them is ended, too.
//
// # Containers
//
// A task's main process is a body: a child of the shim, or a container that the worker made and that
// the shim starts, in package vessel. Its output comes over a connection with the engine into
// the same pipes as that of a process, so that all that is done to output, time and leases is one code. A
// container is no child: whose processes they are its control group and its label tell, and no record
// of a shim. Calls to an engine are made by goroutines of the attempt, have bounds, and
// hold up no other attempt.
//
// # Bugs
//
// What is done for one attempt is done under fault.Run: a panic is logged with its stack in shim.log, and fails
// that attempt as worker_internal, with its processes killed and its log kept. Other attempts run on.
//
// A panic while frames are sent to the worker, or read from it, ends the connection, as a part of a frame may have been
// sent. The worker connects again as long as the shim lives: it is told all that is held, and asks again for what may
// not have arrived (starts, stops, reports, freezing). A start that is asked for again is answered and not repeated. A
// line that the worker was writing into a log may be lost, and is never written twice. The worker gives the shim up
// after maxRedials connections in a row that broke at once. News that cannot be encoded fail the attempt that they
// are of. A shim that is a part of the worker's process has no second connection: its attempts end with the first.
//
// # What is not promised
//
// A shim that is killed takes its tasks with it: if its worker lives they are
// ended at once and fail as worker_internal, else when the worker comes back; containers are
// removed by the worker then. The
// same holds if the whole service is killed, as systemd does without
// KillMode=process, and a container with its first process.
//
// Elsewhere than on Linux there are no shims of their own: the same code runs as a
// part of the worker, tasks do not outlive it, and only their process groups are
// known. Client.Outlives tells.
package shim
