// Package granting records who may have which blobs, many uploads at a time in one transaction of the store.
package granting
