// Package progress reads what tasks report of their progress, as lines of output and as events, and reduces it to points for their logs.
package progress
