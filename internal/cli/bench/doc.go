// Package bench has the commands about the results of benchmark tasks.
package bench
