// Package kinds runs tasks of defined kinds, those that come with Muster and those of the worker's owner, as
// processes or in containers: see internal/kind.
//
// Such a task is a process task (internal/agent/run/process) whose program is the kind's entry. Before it starts
//
//   - its input, in which ${…} is resolved now, is held to the kind's schema again, and written to $MUSTER_INPUT;
//   - the runtime of the kind is made, and its modules are put on PYTHONPATH;
//   - folders of the worker's are lent to it: the kind's own, the runtime's, and that of models;
//   - a host that keeps its model loaded is asked for, where the worker has such.
//
// In a container the interpreter and the packages are the image's. Modules, the kind's folder, models and the worker's own
// program are mounted below /muster.
package kinds
