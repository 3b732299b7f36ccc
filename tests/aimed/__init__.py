"""Files that are made to break whoever reads them: generators, one function each."""
