// Package series adds up the samples of an attempt to its usage, and thins long
// series out.
package usageseries
