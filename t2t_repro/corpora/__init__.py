"""Getting text: archives that are downloaded, verified and unpacked, and parallel files."""
