// Package trainforge implements both sides of TrainForge's HTTP interface.
//
// Gateway serves TrainForge's three workers and its clients from a Muster server:
//
//	A  "worker node"   /api/workers/{register,heartbeat,jobs,job-status,unregister}; reads projects from a shared folder
//	B  "poller"        /api/jobs?limit=1, PUT /api/jobs/{id}, POST /api/jobs/{id}/logs; the same shared folder; says no id
//	C  "external"      register, heartbeat, /api/jobs/pending, claim, status, files, logs/batch, results
//
// Bridge takes jobs from a TrainForge server, as worker C does where the server has that interface and as worker B does
// where it has only the older one, and has Muster run them.
//
// # Projects
//
// All three workers do the same with a job: they run a Python program of a folder. A Muster task becomes such a folder: its
// files and inputs are in task/, and the program, train.py, is ours (package project). It runs the task's command there with its
// environment and writes what Muster wants to know to its output: progress as ::muster lines, a line ::trainforge
// {"alive":true} every half minute, and at the end one with the exit code and the result. Outputs are uploaded by it where it
// finds the server's URL in its environment, and are read from the shared folder otherwise.
//
// # What TrainForge cannot do
//
// A worker cannot be stopped remotely. Worker A drops jobs that it cannot start without a word; a job that is not begun in
// time goes back to the server. Worker B says no id: it is known by its address. Worker C asks for jobs without an id and
// names itself when it claims one: so it is shown a ticket, and the claim binds the ticket to the task that this worker was given.
package trainforge
