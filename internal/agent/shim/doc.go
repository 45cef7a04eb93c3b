// Package shim supervises the processes of a worker's tasks. A shim outlives the worker: the worker can be killed, upgraded or restarted
// without effect on its tasks.
//
//	worker ──────────── socket ──────────── shim ───────────── tasks
//	Client                                  server             17.3#2
//	 ├ shimConn ─ frames ─────────── session ─┤                 ├ sh
//	 └ proc (17.3#2)                          └ attempt (17.3#2) └ python
//	                                             │  pipes, $MUSTER_EVENTS, exit
//	                                             └─► DATA/logs/17/0/3.2.log
//
// A shim is one small process for all tasks of a worker: the same program, started with the first task. It is the parent of the tasks' main
// processes and the reaper of their orphans, and the only process that knows how they end. So it does everything that must not wait for a
// worker: it reads their output into the attempts' logs, reads their events, stops them at their timeout and at the end of their lease, and
// keeps all of it until the worker sends Forget. It exits when it holds nothing and no worker is connected.
//
// # State directories
//
// Each shim has a directory, DATA/shim/NAME, which it removes at its end:
//
//	sock  its listening socket, created by the worker, so that it is always reachable
//	key   which a worker must send. A task of the same user may find the socket, since a
//	      sandbox does not block it, but it cannot read this; descendants of the shim are
//	      rejected too
//	pid   the shim's process, and the device and inode of the directory: in a copy they
//	      differ, and the processes of a copy belong to another worker
//	pids  the processes of its tasks, by PID, start time and boot, and by their tag
//
// A worker that starts connects to each shim and continues its attempts. If no shim listens, the shim has exited, and its processes are ended
// by their record: a process whose PID was reused is never touched. A shim that does not respond is ended with its tasks, since they would
// run twice.
//
// A shim whose directory was deleted accepts no new tasks. Once no worker is connected it kills its tasks and exits: the next worker would
// not find it, and the tasks would run twice.
//
// After an upgrade there are several shims: the shim of the earlier build keeps its tasks, new tasks start in a new one, and the old one
// exits with its last task.
//
// # The connection
//
// Frames are JSON with a length prefix; see package wire. A shim serves one worker: when another one connects, the first one is notified, and
// all that it has sent, such as its last reports, is handled first. A worker considers a shim hung that missed several pings, not by the
// clock: the worker itself may have been stopped. Nothing in a shim waits for a worker. Changes of an attempt (log size, progress, exit) are
// merged until they are sent, so that a hung worker costs the shim a few kilobytes per attempt, and does not delay tasks. An attempt costs
// its StartSpec, which is about twice its spec, its report, 64 KiB while it prints, and at most progress.MaxMetrics metrics.
//
// # Logs
//
// A log has one writer at a time: the worker until it calls Start, then the shim. StartSpec.LogSize is where the worker stopped; a log of
// another size is an error. From then on the worker writes with Record frames.
//
// Output, progress and messages do not contain the values of StartSpec.Redact, which a shim receives over its socket, holds in memory and sends
// to the next worker, but writes to no file. The output of commands of clients is not changed: they can read the task's environment.
//
// # How processes are attributed
//
// A shim is the subreaper of its descendants, so that all processes of tasks stay below it. A process belongs to an attempt if it is in its
// main process's group or session, if it descends from it, or if StartSpec.EnvTag is in its environment. An orphan with none of these belongs
// to an attempt that was running when the orphan started; once no such attempt runs, it is killed. If an attempt has control groups, all
// processes in them are ended too.
//
// # Containers
//
// A task's main process is a workload: a child of the shim, or a container that the worker created and the shim starts with package
// containerrun. The output of a container comes from the engine into the same pipes as that of a process, so that output, time and leases
// share their code. A container's processes are not children: its control group and its label identify them, and a shim does not record them.
// Calls to an engine are made by goroutines of the attempt, with timeouts, and do not delay other attempts.
//
// # Bugs
//
// Work for one attempt runs under fault.Run: a panic is logged with its stack in shim.log, and fails that attempt as worker_internal, with its
// processes killed and its log kept. Other attempts continue.
//
// A panic while frames are sent or read closes the connection, since a part of a frame may have been sent. The worker reconnects while the
// shim runs: it receives all attempts, and sends again what may not have arrived (starts, stops, reports, freezes). A start that arrives twice
// is not repeated. A record that the worker was writing to a log may be lost, and is never written twice. After maxRedials connections in a
// row that broke at once the worker ends the shim. Updates that cannot be encoded fail their attempt. A shim in the worker's process has no
// second connection: its attempts end with the first.
//
// # What is not promised
//
// A shim that is killed takes its tasks with it: if its worker runs they are ended at once and fail as worker_internal, else when the worker
// starts; containers are removed by the worker then. The same holds if the whole service is killed, as systemd does without
// KillMode=process, and for a container of the worker with its first process.
//
// On other systems than Linux the shim is part of the worker: tasks do not outlive it, and only their process groups are known.
package shim
