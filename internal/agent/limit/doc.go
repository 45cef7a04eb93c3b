// Package limit holds tasks to their resources and away from what is not theirs.
package limit
