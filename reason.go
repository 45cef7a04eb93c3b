package muster

import "slices"

// Reason says why a task or an attempt ended, or why a task waits. The set is
// closed and stable: clients and retry policies match on it.
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
	FetchFailed     Reason = "fetch_failed"    // the worker could not download an input
	UploadFailed    Reason = "upload_failed"   // the worker could not upload an output
	StartFailed     Reason = "start_failed"    // the command could not be executed
	DiskFull        Reason = "disk_full"       // the worker's disk
	BadReference    Reason = "bad_reference"   // ${…} could not be resolved
	NeedNotMet      Reason = "need_not_met"    // a needed task did not succeed
	ConditionFalse  Reason = "condition_false" // its when is false, or its array is empty
	JobStopped      Reason = "job_stopped"     // too many tasks of the job failed, see on_failure
	CrashLimit      Reason = "crash_limit"     // too many workers crashed while running it
	WorkerLost      Reason = "worker_lost"     // the lease expired without contact
	WorkerRestarted Reason = "worker_restart"  // reconnected without the attempt
	WorkerShutdown  Reason = "worker_shutdown"
	Rejected        Reason = "rejected"
	CancelledByUser Reason = "cancelled_by_user"
	WorkerInternal  Reason = "worker_internal" // a bug in the worker
	TaskInvalid     Reason = "invalid_spec"    // detected only on the worker
	ResultInvalid   Reason = "result_invalid"  // result.json is not JSON or too large
	PIDLimit        Reason = "pid_limit"       // more processes than resources.pids
	DiskLimit       Reason = "disk_limit"      // its folders exceeded resources.disk
	GPUMemory       Reason = "gpu_memory"      // exceeded its share of a device's memory
	GPUFault        Reason = "gpu_fault"       // a device failed while it was running
	Preempted       Reason = "preempted"       // stopped to make room; continues on another worker
	GangMember      Reason = "gang_member"     // another member of its gang ended
	ImageMissing    Reason = "image_missing"   // the image does not exist or access is denied
	ImagePull       Reason = "image_pull"      // the worker could not pull the image
	EngineFailed    Reason = "engine_failed"   // the worker's container engine failed or stopped
	BadInput        Reason = "bad_input"       // data, model or a parameter is invalid
	Diverged        Reason = "diverged"        // the computation produced a NaN or an infinity
)

var fleetReasons = []Reason{
	FetchFailed, UploadFailed, DiskFull, WorkerLost, WorkerRestarted, WorkerShutdown, Rejected, WorkerInternal,
	GPUFault, Preempted, GangMember, ImagePull, EngineFailed,
}

// Reasons lists every reason but NoReason.
var Reasons = []Reason{
	ExitCode, Signal, OutOfMemory, Timeout, QueueTimeout, ArtifactMissing, Dependency, FetchFailed, UploadFailed,
	StartFailed, DiskFull, BadReference, NeedNotMet, ConditionFalse, JobStopped, CrashLimit, WorkerLost, WorkerRestarted, WorkerShutdown, Rejected,
	CancelledByUser, WorkerInternal, TaskInvalid, ResultInvalid, PIDLimit, DiskLimit,
	GPUMemory, GPUFault, Preempted, GangMember, ImageMissing, ImagePull, EngineFailed, BadInput, Diverged,
}

// FleetFault reports whether the fleet, and not the task or its user, caused the
// failure. Such attempts are retried without counting against retries.max, up to
// CrashLimit times if the task may have crashed its worker.
func (r Reason) FleetFault() bool { return slices.Contains(fleetReasons, r) }
