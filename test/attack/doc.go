// Package attack attacks the real program as a hostile task, worker, server or client would.
// Each test states one sentence about security, and fails if the guard that holds it is removed.
package attack
