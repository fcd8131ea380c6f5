a file where the folder should be
