// Package outbound is how a worker, and the programs that come with it, fetch what a user names by URL: by HTTP and, unless the worker's owner
// says otherwise, from public addresses only, so that no job reaches what is behind the worker's firewall.
package outbound
