package muster

// Meaning explains the state in a sentence without a capital letter and a dot; "" if it is invalid.
func (s TaskState) Meaning() string {
	switch s {
	case Waiting:
		return "waits for other tasks to succeed, or for its next attempt"
	case Queued:
		return "can start as soon as a worker has room for it"
	case Assigned:
		return "was given to a worker that has not started it yet"
	case Running:
		return "a worker executes it"
	case Cancelling:
		return "its worker was asked to stop it and has not confirmed"
	case Succeeded:
		return "ended with exit code 0, and its outputs are stored"
	case Failed:
		return "ended with an error after its last attempt; its reason says which"
	case TimedOut:
		return "exceeded timeout, or queue_timeout before it started"
	case Cancelled:
		return "was stopped by a user"
	case Skipped:
		return "did not run, because a task that it needs did not succeed"
	}
	return ""
}

// Meaning explains the state in a sentence without a capital letter and a dot; "" if it is invalid.
func (s JobState) Meaning() string {
	switch s {
	case JobWaiting:
		return "no task has started, and all wait for other tasks"
	case JobQueued:
		return "no task has started, and at least one can start as soon as a worker has room"
	case JobRunning:
		return "at least one task has started, and not all have ended"
	case JobSucceeded:
		return "all tasks have succeeded"
	case JobFailed:
		return "has ended, and a task failed"
	case JobTimedOut:
		return "has ended, and a task timed out; none failed"
	case JobCancelled:
		return "has ended, and a task was cancelled; none failed or timed out"
	}
	return ""
}

// Meaning explains the state in a sentence without a capital letter and a dot; "" if it is invalid.
func (s WorkerState) Meaning() string {
	switch s {
	case WorkerPending:
		return "waits for an administrator's approval, and gets no tasks"
	case WorkerActive:
		return "takes tasks"
	case WorkerPaused:
		return "keeps its tasks, and gets no new ones"
	case WorkerDraining:
		return "gets no new tasks, and leaves when its last one has ended"
	case WorkerUnreachable:
		return "has no connection; its tasks may still run until their leases expire"
	case WorkerGone:
		return "has left, or all its leases have expired"
	}
	return ""
}

// Meaning explains the outcome in a sentence without a capital letter and a dot; "" if it is unknown.
func (o Outcome) Meaning() string {
	switch o {
	case AttemptOpen:
		return "has not ended"
	case AttemptSucceeded:
		return "its result is the result of the task"
	case AttemptFailed:
		return "ended with an error"
	case AttemptTimedOut:
		return "exceeded timeout"
	case AttemptCancelled:
		return "was stopped by a user, or to make room"
	case AttemptRejected:
		return "its worker did not accept it"
	case AttemptLost:
		return "its lease expired without contact to the worker"
	}
	return ""
}

// Meaning explains the reason in a sentence without a capital letter and a dot; "" if it is unknown.
func (r Reason) Meaning() string {
	switch r {
	case NoReason:
	case ExitCode:
		return "the program ended with an exit code other than 0"
	case Signal:
		return "a signal ended the program"
	case OutOfMemory:
		return "it needed more than resources.memory"
	case Timeout:
		return "it ran longer than timeout"
	case QueueTimeout:
		return "it did not start within queue_timeout"
	case ArtifactMissing:
		return "a file of inputs or outputs does not exist"
	case Dependency:
		return "a package or program that it needs is not installed"
	case FetchFailed:
		return "the worker could not download an input"
	case UploadFailed:
		return "the worker could not upload an output"
	case StartFailed:
		return "the command could not be executed"
	case DiskFull:
		return "the worker's disk was full"
	case BadReference:
		return "${…} could not be resolved"
	case NeedNotMet:
		return "a task that it needs did not succeed"
	case ConditionFalse:
		return "its condition when is false, or its array is empty"
	case JobStopped:
		return "too many tasks of the job had failed: see on_failure"
	case CrashLimit:
		return "too many workers crashed while they ran it"
	case WorkerLost:
		return "the lease expired without contact to the worker"
	case WorkerRestarted:
		return "the worker restarted and no longer has the attempt"
	case WorkerShutdown:
		return "the worker shut down before it ended"
	case Rejected:
		return "the worker did not accept it"
	case CancelledByUser:
		return "a user cancelled it"
	case WorkerInternal:
		return "an internal error of the worker"
	case TaskInvalid:
		return "the worker found an error in the spec"
	case ResultInvalid:
		return "the file result.json is not JSON, or too large"
	case PIDLimit:
		return "it had more processes than resources.pids"
	case DiskLimit:
		return "it wrote more than resources.disk"
	case GPUMemory:
		return "it used more than its share of a GPU's memory"
	case GPUFault:
		return "a GPU failed while it was running"
	case Preempted:
		return "it was stopped to make room, and continues on another worker"
	case GangMember:
		return "another member of its gang ended"
	case ImageMissing:
		return "the container image does not exist, or access to it is denied"
	case ImagePull:
		return "the worker could not pull the container image"
	case EngineFailed:
		return "the worker's container engine failed"
	case BadInput:
		return "data, a model or a parameter is invalid"
	case Diverged:
		return "the computation produced a NaN or an infinity"
	}
	return ""
}
