// Package container creates the containers of tasks: it pulls images, keeps them within a disk budget, creates containers from specs
// within the limits of the worker's owner, and removes orphaned ones. It implements process.Containers.
//
// It only creates a container; the shim starts and supervises it. All that this package knows about running containers is in their
// labels, by which the next incarnation of the worker finds orphaned ones.
//
//	Create  allowed? ── image present? ── pull, shared ── plan ── create
//	Run     is the engine ready? ── sweep when it becomes ready ── evict images over the budget
//
// Guarantees: a task that fails here leaves no container, or one that is swept; credentials are only sent to the engine; only images
// that tasks pulled are removed; no container gets anything that Allow does not permit, whatever the spec and the server request.
// docs/containers.md is the user's view.
package container
