// Package warm keeps processes that hold models in memory between tasks.
package warm
