package auth

import "slices"

// Verb is an operation that needs a permission.
type Verb string

// The verbs.
const (
	ReadJobs      Verb = "read jobs"
	SubmitJobs    Verb = "submit jobs"
	ChangeJobs    Verb = "cancel, retry or edit jobs"
	ReadWorkers   Verb = "see workers"
	ManageWorkers Verb = "steer workers"
	CreateKeys    Verb = "create keys"
	ManageKeys    Verb = "manage keys"
	JoinWorkers   Verb = "join workers"
	ConnectWorker Verb = "connect as this worker"
	ReadBlobs     Verb = "read blobs"
	WriteBlobs    Verb = "write blobs"
	ManageNotify  Verb = "manage notifications"
	ManageSecrets Verb = "manage secrets"
	RemoveJobs    Verb = "remove or keep jobs"

	ManageRetention Verb = "manage retention"
	ReadMetrics     Verb = "read metrics"
	BackUp          Verb = "back up the server"
	ExecTasks       Verb = "execute commands in tasks"
	ReadAudit       Verb = "read the audit log"
)

// Scope is what a permission extends to.
type Scope int

// The scopes.
const (
	Project   Scope = iota // objects of the key's project, or of all projects
	Fleet                  // the whole server: a key for one project does not have the permission
	OwnJobs                // as Project, but only jobs that the key submitted; admins: all jobs
	OwnWorker              // the worker of the key
)

// Rule says who has a permission.
type Rule struct {
	Verb  Verb
	Scope Scope
	Roles []Role
	Text  string // what the permission covers, for the documentation
}

// Table has all permissions, one rule for each verb. Nothing else in the program knows what a role may do.
var Table = []Rule{
	{ReadJobs, Project, []Role{Admin, Operator, Submitter, Viewer}, "jobs, tasks, logs, results and artifacts. Values of variables and webhook URLs are hidden from keys that may not submit jobs"},
	{SubmitJobs, Project, []Role{Admin, Submitter}, "submit and plan jobs, which run their commands on workers, and create schedules that submit jobs"},
	{ChangeJobs, Project, []Role{Admin, Operator, Submitter}, "cancel, retry, hold and share jobs, and change their priority; pause, resume, run and delete schedules"},
	{ReadWorkers, Project, []Role{Admin, Operator, Submitter, Viewer}, "workers, kinds and the load of the fleet; a key for one project sees tasks of its project only"},
	{ManageWorkers, Fleet, []Role{Admin, Operator}, "drain, pause, resume, heal and remove workers"},
	{CreateKeys, Project, []Role{Admin, Operator}, "create keys of the roles below"},
	{ManageKeys, Project, []Role{Admin}, "list, rotate and revoke keys"},
	{JoinWorkers, Project, []Role{Admin, Operator, Join}, "add workers, and download the program for them; with a key for one project, workers that take its tasks only"},
	{ConnectWorker, OwnWorker, []Role{Worker}, "take tasks and report on them"},
	{ReadBlobs, Project, []Role{Admin, Submitter, Worker}, "download uploaded files; workers: those that their tasks need"},
	{WriteBlobs, Project, []Role{Admin, Submitter, Worker}, "upload files"},
	{ManageNotify, Project, []Role{Admin}, "webhooks of a project and their secret"},
	{ManageSecrets, Project, []Role{Admin}, "set and delete secrets. Who may submit jobs sees the names of a project's secrets and may name them in tasks, which get their values"},
	{RemoveJobs, Project, []Role{Admin, Operator, Submitter}, "remove ended jobs, exempt jobs from retention, and clear the result cache"},
	{ManageRetention, Project, []Role{Admin, Operator}, "retention policies, and deletion of what exceeds them"},
	{ReadMetrics, Fleet, []Role{Admin, Operator, Submitter, Viewer}, "metrics of the server, and why a gateway fails"},
	{BackUp, Fleet, []Role{Admin}, "download a backup of the whole server"},
	{ExecTasks, OwnJobs, []Role{Admin, Submitter}, "commands and file copies in running tasks"},
	{ReadAudit, Project, []Role{Admin}, "who did what and what was denied; a key for one project reads the records of its project, and cannot verify or export the log, which is one for all"},
}

// Grants lists the roles of the keys that a role may create.
var Grants = map[Role][]Role{
	Admin:    {Admin, Operator, Submitter, Viewer, Join},
	Operator: {Join},
}

// ruleOf returns the rule of a verb; one without roles if there is none.
func ruleOf(verb Verb) Rule {
	if i := slices.IndexFunc(Table, func(r Rule) bool { return r.Verb == verb }); i >= 0 {
		return Table[i]
	}
	return Rule{Verb: verb}
}

// leastRole returns the role with the fewest permissions that may use verb.
func leastRole(verb Verb) Role {
	for _, r := range []Role{Join, Viewer, Worker, Submitter, Operator} {
		if slices.Contains(ruleOf(verb).Roles, r) {
			return r
		}
	}
	return Admin
}
