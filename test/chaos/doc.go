// Package chaos runs the real program under random faults and a random workload, and
// then checks the recorded history against what docs/guarantees.md promises.
//
//	make chaos SEED=17 DURATION=5m
//
// A run has four parts:
//
//   - A plan is made from the seed: which jobs are submitted when, and which faults
//     hit the server, the workers, their supervisors, networks and disks. The same seed
//     and duration give the same plan (plan_test.go, workload_test.go).
//   - The plan is carried out on a server and three workers, each worker behind its own
//     faulty TCP proxy (faults_test.go, cluster_test.go). Everything that a client or a
//     task can see is recorded: acknowledgements, events, what tasks append to effect files
//     outside Muster (clients_test.go, history_test.go). Some jobs are kept or removed, a
//     project keeps few jobs, and there are prunes (retention_test.go).
//   - All faults end. The server deletes what is not kept, while it is killed, and the history is completed with the final state of the API, logs
//     and artifacts, before and after a last kill of the server, and what it has on disk (collect_test.go).
//   - The checker compares the history with the promises (invariants_test.go). It is a pure
//     function; its own tests show for each promise a history that violates it
//     (checker_test.go).
//
// A run touches only processes, folders and mounts that it made itself. Disk faults
// need root, because they mount small file systems; without root the run says that they
// are left out.
package chaos
