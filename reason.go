package muster

import "slices"

// Reason says why a task or an attempt ended as it did, or why it waits. The
// set is closed and stable: clients and retry policies match on it.
type Reason string

// The reasons.
const (
	NoReason        Reason = ""
	ExitCode        Reason = "exit_code"
	Signal          Reason = "signal"
	OutOfMemory     Reason = "out_of_memory"
	Timeout         Reason = "timeout"
	QueueTimeout    Reason = "queue_timeout"
	ArtifactMissing Reason = "artifact_missing"
	Dependency      Reason = "dependency"
	FetchFailed     Reason = "fetch_failed"   // an input could not be brought to the worker
	UploadFailed    Reason = "upload_failed"  // an output could not be taken off the worker
	StartFailed     Reason = "start_failed"   // the command could not be executed
	DiskFull        Reason = "disk_full"      // the worker's disk
	BadReference    Reason = "bad_reference"  // ${…} could not be resolved
	NeedNotMet      Reason = "need_not_met"   // a needed task did not succeed
	CrashLimit      Reason = "crash_limit"    // took too many workers down
	WorkerLost      Reason = "worker_lost"    // silent past its lease
	WorkerRestarted Reason = "worker_restart" // came back without the attempt
	WorkerShutdown  Reason = "worker_shutdown"
	Rejected        Reason = "rejected"
	CancelledByUser Reason = "cancelled_by_user"
	WorkerInternal  Reason = "worker_internal" // a bug of ours on the worker
	TaskInvalid     Reason = "invalid_spec"    // found out only on the worker
	ResultInvalid   Reason = "result_invalid"  // result.json is no JSON or too big
	PIDLimit        Reason = "pid_limit"       // more processes than resources.pids
	DiskLimit       Reason = "disk_limit"      // its folders grew over resources.disk
	GPUMemory       Reason = "gpu_memory"      // over its share of a device's memory
	GPUFault        Reason = "gpu_fault"       // a device failed under it
	Preempted       Reason = "preempted"       // asked to make room; it goes on elsewhere
	GangMember      Reason = "gang_member"     // another member of its gang ended
	ImageMissing    Reason = "image_missing"   // its image is nowhere, or may not be had with these credentials
	ImagePull       Reason = "image_pull"      // its image could not be brought to the worker
	EngineFailed    Reason = "engine_failed"   // the worker's container engine failed, or went away under it
	BadInput        Reason = "bad_input"       // its data, its model or a parameter is not what it must be
	Diverged        Reason = "diverged"        // what it computed is no longer a finite number
)

var fleetReasons = []Reason{
	FetchFailed, UploadFailed, DiskFull, WorkerLost, WorkerRestarted, WorkerShutdown, Rejected, WorkerInternal,
	GPUFault, Preempted, GangMember, ImagePull, EngineFailed,
}

// Reasons lists every reason but NoReason.
var Reasons = []Reason{
	ExitCode, Signal, OutOfMemory, Timeout, QueueTimeout, ArtifactMissing, Dependency, FetchFailed, UploadFailed,
	StartFailed, DiskFull, BadReference, NeedNotMet, CrashLimit, WorkerLost, WorkerRestarted, WorkerShutdown, Rejected,
	CancelledByUser, WorkerInternal, TaskInvalid, ResultInvalid, PIDLimit, DiskLimit,
	GPUMemory, GPUFault, Preempted, GangMember, ImageMissing, ImagePull, EngineFailed, BadInput, Diverged,
}

// FleetFault reports whether the fleet rather than the task or its user is to
// blame. Such attempts are retried without counting against retries.max, up to
// CrashLimit times for those that may have taken their worker down.
func (r Reason) FleetFault() bool { return slices.Contains(fleetReasons, r) }
