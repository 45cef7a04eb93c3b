// Package e2e runs the real program as real processes and hurts them: kill -9,
// SIGSTOP, full disks. Its tests replay what was recorded against the
// guarantees of docs/guarantees.md.
package e2e
