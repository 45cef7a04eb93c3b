// Package runtime has the commands about Python runtimes.
package runtime
