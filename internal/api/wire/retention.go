package wire

import "github.com/muster-dev/muster"

// PruneRequest asks for a prune.
type PruneRequest struct {
	Project string          `json:"project,omitempty" maxLength:"64" pattern:"^[A-Za-z0-9_-]*$" patternDescription:"letters, digits, - and _" doc:"absent means all projects, uploads and workers"`
	Keep    RetentionPolicy `json:"keep,omitzero" doc:"limits for this prune, in place of those of the policies"`
	DryRun  bool            `json:"dry_run,omitempty" doc:"only return what would be deleted"`
}

// Prune is what a prune deletes, or would delete.
type Prune struct {
	Jobs        PruneCount     `json:"jobs"`
	Logs        PruneCount     `json:"logs"`
	Artifacts   PruneCount     `json:"artifacts"`
	Uploads     PruneCount     `json:"uploads"`
	LateReports PruneCount     `json:"late_reports"`
	Workers     PruneCount     `json:"workers"`
	Examples    []muster.JobID `json:"examples,omitempty" maxItems:"100" doc:"some of the jobs"`
}

// PruneCount counts one kind of data.
type PruneCount struct {
	Number   int64       `json:"number" doc:"jobs, or jobs with logs or artifacts, files, reports or workers"`
	Tasks    int64       `json:"tasks,omitempty" doc:"of the jobs"`
	Bytes    muster.Size `json:"bytes,omitempty" doc:"a file that several jobs have counts for each"`
	OldestAt muster.Time `json:"oldest_at,omitzero"`
	Names    []string    `json:"names,omitempty" maxItems:"100" doc:"some of the workers"`
}

// Retention is the policies of the server and its projects.
type Retention struct {
	Defaults     RetentionPolicy    `json:"defaults"`
	StartsAt     muster.Time        `json:"starts_at,omitzero" doc:"when the built-in defaults begin to apply after an upgrade; absent if they do"`
	Uploads      string             `json:"uploads"`
	Workers      string             `json:"workers"`
	Projects     []ProjectRetention `json:"projects" doc:"projects with a policy of their own"`
	WaitingJobs  int                `json:"waiting_jobs" doc:"removed jobs whose rows and files are being deleted, up to 1000"`
	LastPassAt   muster.Time        `json:"last_pass_at,omitzero"`
	DelayedUntil muster.Time        `json:"delayed_until,omitzero" doc:"deleting by age waits until then, because the server was off for more than a week"`
}

// ProjectRetention is the policy of a project.
type ProjectRetention struct {
	Project string `json:"project"`
	RetentionPolicy
}

// RetentionPolicy is how long the data of jobs is kept: "forever", or an age, a number, a size, or several with commas.
type RetentionPolicy struct {
	Jobs        string `json:"jobs,omitempty" example:"30d"`
	Logs        string `json:"logs,omitempty" example:"7d,50GiB"`
	Artifacts   string `json:"artifacts,omitempty" example:"1000"`
	LateReports string `json:"late_reports,omitempty" example:"forever"`
}
