"""Networks of torch; imported only when somebody asks for one."""
