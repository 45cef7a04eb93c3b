// Package usageseries adds up the samples of an attempt to its usage, and downsamples
// long series.
package usageseries
