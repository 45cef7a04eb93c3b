// Package secrets keeps the secrets of projects: values that their tasks are given, such as tokens. They are stored encrypted (package
// sealing) and leave the server only with the assignment of a task that names them.
//
// The project, name, version and worker tags of a secret are the context of its encryption: a row that was changed, or whose value is that of
// another row, cannot be read.
//
// Without its key a Keeper works, but reads nothing: tasks wait, and lists say why.
package secrets
