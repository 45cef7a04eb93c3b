package sched

func (s *State) Check() error { return nil }
