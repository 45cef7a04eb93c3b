// Package fleet makes workers of other systems workers of Muster. Each of them is an agent.Agent of this process with an
// identity, a key and a session of its own, so that leases, fencing, retries, logs and drains are those of every worker. Only
// what executes a task is different: an executor offers it to the gateway and waits for its report.
//
//	server ◄── link session ── agent ── executor ── Task ◄──► gateway ◄──► foreign worker
//	                                       │
//	                                     state: workers, held tasks, reports (bbolt)
//
// # Contact
//
// A worker is there while its gateway calls Touch. After Config.Silence without it its session ends without a goodbye, as if
// a cable had been pulled: the server shows the worker as unreachable, its leases run, and after them its tasks
// are given to others. If it is touched before, it comes back with what it holds.
//
// # Restarts
//
// Workers, the tasks that they hold, and final reports are on disk before anybody is told of them. When the server's process
// ends, in order or not, the next Fleet on the folder takes all of them up, under the same ids: a worker notices at most
// that requests failed for a while.
//
// # What no foreign system can do
//
// A task that is cancelled, or that has timed out, is over for the server at once. If its worker cannot be told, it may still
// be busy with it: then the worker takes nothing new until a final report of that task came (Fleet.Late) or until it asks for
// work as one that is idle (Worker.Idle).
package fleet
