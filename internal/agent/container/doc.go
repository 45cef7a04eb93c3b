// Package container makes the containers of tasks: it brings images here, keeps
// them within their share of the disk, creates containers as specs and the worker's
// owner say, and removes what is left of them. It implements run.Containers.
package container
