// Package container makes the containers of tasks: it brings images here, keeps
// them within their share of the disk, creates containers as specs and the worker's
// owner say, and removes what is left of them. It implements run.Containers.
//
// A container is created here and not started: the shim does that, and stands by it as
// by a process. So all that this package knows of living containers is in their labels, by
// which a later life of the worker finds those that nobody holds.
//
//	Make   allowed? ── image here? ── pull, shared ── plan ── create
//	Run    is the engine there? ── sweep when it is back ── images over their budget
//
// What is promised: a task that fails here leaves no container, or one that is swept; credentials go to
// the engine and nowhere else; an image that no task brought is not removed; and no container is given what
// Allow does not say, whatever the spec and the server do. docs/containers.md tells users the same.
package container
