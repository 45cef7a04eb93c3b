package run

// Observer is notified while something is prepared for a task. Its functions may be called concurrently.
type Observer struct {
	Step      func(step string) // the current step
	LogLine   func(line string) // a line for the task's log
	Requester string            // who requested it, in the messages of other tasks that wait for it; ""
}

// Runtime is a managed Python environment, ready for use.
type Runtime struct {
	Name       string
	Python     string   // its interpreter, absolute
	VenvDir    string   // of its virtual environment, "" for an interpreter that the operator configured
	ModuleDirs []string // folders for PYTHONPATH, with the modules of its kinds
	ReadDirs   []string // other folders that its programs read
}
