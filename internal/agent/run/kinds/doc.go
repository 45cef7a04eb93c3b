// Package kinds runs tasks of defined kinds, Muster's own and those of the worker's owner, as processes or in containers. Package
// internal/kind has the definitions.
//
// Such a task is a process task (internal/agent/run/process) whose program is the kind's entry. Before the start
//
//   - its input, with ${…} resolved, is validated again and written to $MUSTER_INPUT;
//   - the kind's runtime is built if necessary, and its modules are added to PYTHONPATH;
//   - the folders of the kind, of its runtime and of models become visible to the task;
//   - a model server is started or reused, if the kind and the worker have model servers.
//
// A container uses the interpreter and the packages of its image. Modules, the kind's folder, models and the worker's program are
// mounted below /muster.
package kinds
