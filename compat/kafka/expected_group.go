package main

func groupExpectations() []expectation {
	const soon = "The assignment is computed when a member comes or goes. Kafka 4.4 does so at intervals, and an empty group " +
		"counts as assigned."
	return []expectation{
		{"group-join", []string{"leader again in Stable: *. describe *"}, "*, assignment \"a\"], *", "*, assignment \"\"], *", 1,
			"While a group has no assignment, none is shown. Kafka shows that of the generation before."},
		{"group-sync", []string{"Preparing: *. describe *"}, "*, assignment \"a\" *", "*, assignment \"\" *", 1,
			"While a group has no assignment, none is shown. Kafka shows that of the generation before."},
		{"group-admin", []string{"delete: *. delete v3 *"}, "code *, text false", "code *, text true", 3,
			"An error says what is wrong where the response has room for it."},
		{"group-new", []string{"join: *. first epoch"}, "2", "1", 1,
			"A group begins with epoch 1. Kafka raises the epoch of a new group twice, for its member and for its topics."},
		{"group-new", []string{"regex: *. A join"}, "*, assignment []", "*, assignment [*", 1,
			"A regular expression is resolved at once; Kafka does it behind the first answer."},
		{"group-new", []string{"leave: *. describe new"}, "*, assigned E+1 *", "*, assigned E+0 *", 1, soon},
		{"group-new", []string{"two members: *. B join"}, "*, epoch E+0, *", "*, epoch E+1, *", 1, soon},
	}
}
