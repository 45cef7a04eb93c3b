// Package outbound fetches URLs that users name, for a worker and its helper programs: by HTTP, and only from public addresses unless the
// worker's owner allows others, so that no job reaches hosts behind the worker's firewall.
package outbound
